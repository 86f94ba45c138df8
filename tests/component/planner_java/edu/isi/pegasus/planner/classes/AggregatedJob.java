// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.partitioner.graph.GraphNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

public class AggregatedJob extends Job {
    public final List<GraphNode> parts = new ArrayList<GraphNode>();

    public Iterator<GraphNode> nodeIterator() {
        return parts.iterator();
    }
}
