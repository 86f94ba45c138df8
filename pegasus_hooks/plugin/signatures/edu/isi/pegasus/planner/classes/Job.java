// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.namespace.Condor;
import edu.isi.pegasus.planner.namespace.Dagman;
import edu.isi.pegasus.planner.namespace.Hints;
import edu.isi.pegasus.planner.namespace.Namespace;
import edu.isi.pegasus.planner.namespace.Pegasus;
import edu.isi.pegasus.planner.partitioner.graph.GraphNodeContent;
import java.util.Set;

public class Job implements GraphNodeContent {
    @SuppressWarnings("rawtypes")
    public Set inputFiles;

    @SuppressWarnings("rawtypes")
    public Set outputFiles;

    public Condor condorVariables;
    public Dagman dagmanVariables;
    public Hints hints;
    public Pegasus vdsNS;

    public String getID() {
        return null;
    }

    public String getLogicalID() {
        return null;
    }

    public String getTXNamespace() {
        return null;
    }

    public String getTXName() {
        return null;
    }

    public String getTXVersion() {
        return null;
    }

    public Namespace getSelectorProfiles() {
        return null;
    }

    public void setSiteHandle(String site) {}
}
