// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

public class PlannerOptions {
    public String clustering;
    public final Set<String> outputs = new HashSet<String>();
    public final Set<String> inherited = new HashSet<String>();
    public final Set<String> cache = new HashSet<String>();
    public final Set<String> directories = new HashSet<String>();
    public final Map<String, String> staging = new HashMap<String, String>();

    public String getClusteringTechnique() {
        return clustering;
    }

    public Collection<String> getOutputSites() {
        return outputs;
    }

    public String getStagingSite(String executionSite) {
        return staging.get(executionSite);
    }

    public Set<String> getInheritedRCFiles() {
        return inherited;
    }

    public Set<String> getCacheFiles() {
        return cache;
    }

    public Set<String> getInputDirectories() {
        return directories;
    }
}
