// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import java.io.File;

public class PegasusBag {
    public PlannerOptions getPlannerOptions() {
        return null;
    }

    public File getReplicaCatalogFileSource() {
        return null;
    }
}
