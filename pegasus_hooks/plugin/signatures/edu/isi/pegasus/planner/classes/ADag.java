// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.catalog.replica.classes.ReplicaStore;
import edu.isi.pegasus.planner.partitioner.graph.GraphNode;
import java.util.Iterator;

public class ADag {
    public String getLabel() {
        return null;
    }

    public Iterator<GraphNode> jobIterator() {
        return null;
    }

    public ReplicaStore getReplicaStore() {
        return null;
    }
}
