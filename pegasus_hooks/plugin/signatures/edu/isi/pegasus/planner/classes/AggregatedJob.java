// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.partitioner.graph.GraphNode;
import java.util.Iterator;

public class AggregatedJob extends Job {
    public Iterator<GraphNode> nodeIterator() {
        return null;
    }
}
