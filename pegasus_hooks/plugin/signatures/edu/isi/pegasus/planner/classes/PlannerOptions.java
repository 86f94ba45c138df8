// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import java.util.Collection;
import java.util.Set;

public class PlannerOptions {
    public String getClusteringTechnique() {
        return null;
    }

    public Collection<String> getOutputSites() {
        return null;
    }

    public String getStagingSite(String executionSite) {
        return null;
    }

    public Set<String> getInheritedRCFiles() {
        return null;
    }

    public Set<String> getCacheFiles() {
        return null;
    }

    public Set<String> getInputDirectories() {
        return null;
    }

    public String getSubmitDirectory() {
        return null;
    }

    public enum CLEANUP_OPTIONS {}

    public CLEANUP_OPTIONS getCleanup() {
        return null;
    }
}
