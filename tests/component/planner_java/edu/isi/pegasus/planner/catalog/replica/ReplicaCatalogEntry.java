// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.replica;

public class ReplicaCatalogEntry {
    private final String site;
    private final String pfn;

    public ReplicaCatalogEntry(String site, String pfn) {
        this.site = site;
        this.pfn = pfn;
    }

    public String getResourceHandle() {
        return site;
    }

    public String getPFN() {
        return pfn;
    }
}
