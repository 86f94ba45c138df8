// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.namespace.Condor;
import edu.isi.pegasus.planner.namespace.Dagman;
import edu.isi.pegasus.planner.namespace.Hints;
import edu.isi.pegasus.planner.namespace.Namespace;
import edu.isi.pegasus.planner.namespace.Pegasus;
import edu.isi.pegasus.planner.namespace.Selector;
import edu.isi.pegasus.planner.partitioner.graph.GraphNodeContent;
import java.util.HashSet;
import java.util.Set;

public class Job implements GraphNodeContent {
    public Set inputFiles = new HashSet();
    public Set outputFiles = new HashSet();
    public Condor condorVariables = new Condor();
    public Dagman dagmanVariables = new Dagman();
    public Hints hints = new Hints();
    public Pegasus vdsNS = new Pegasus();
    public String[] name = {"", "", ""};
    public String id;
    public String site;
    private final Selector selector = new Selector();

    public String getID() {
        return name[1] + "_" + id;
    }

    public String getLogicalID() {
        return id;
    }

    public String getTXNamespace() {
        return name[0].isEmpty() ? null : name[0];
    }

    public String getTXName() {
        return name[1];
    }

    public String getTXVersion() {
        return name[2].isEmpty() ? null : name[2];
    }

    public Namespace getSelectorProfiles() {
        return selector;
    }

    public void setSiteHandle(String site) {
        this.site = site;
    }
}
