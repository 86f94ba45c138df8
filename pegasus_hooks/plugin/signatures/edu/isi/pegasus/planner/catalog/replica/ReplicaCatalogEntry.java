// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.replica;

public class ReplicaCatalogEntry {
    public String getResourceHandle() {
        return null;
    }

    public String getPFN() {
        return null;
    }
}
