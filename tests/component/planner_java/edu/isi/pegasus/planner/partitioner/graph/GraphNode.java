// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.partitioner.graph;

import java.util.Collection;
import java.util.HashSet;
import java.util.Set;

public class GraphNode {
    public final GraphNodeContent content;
    public final Set<GraphNode> parents = new HashSet<GraphNode>();

    public GraphNode(GraphNodeContent content) {
        this.content = content;
    }

    public GraphNodeContent getContent() {
        return content;
    }

    public Collection<GraphNode> getParents() {
        return parents;
    }
}
