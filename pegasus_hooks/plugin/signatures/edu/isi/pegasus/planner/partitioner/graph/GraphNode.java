// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.partitioner.graph;

import java.util.Collection;

public class GraphNode {
    public GraphNodeContent getContent() {
        return null;
    }

    public Collection<GraphNode> getParents() {
        return null;
    }
}
