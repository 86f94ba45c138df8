// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.catalog.replica.classes.ReplicaStore;
import edu.isi.pegasus.planner.partitioner.graph.GraphNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

public class ADag {
    public String label = "workflow";
    public final Map<String, GraphNode> nodes = new HashMap<String, GraphNode>();
    public final ReplicaStore replicas = new ReplicaStore();

    public String getLabel() {
        return label;
    }

    public Iterator<GraphNode> jobIterator() {
        return nodes.values().iterator();
    }

    public ReplicaStore getReplicaStore() {
        return replicas;
    }
}
