// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.site.classes;

import edu.isi.pegasus.planner.catalog.classes.Profiles;

public class SiteCatalogEntry {
    private final String name;
    private final Profiles profiles = new Profiles();

    public SiteCatalogEntry(String name) {
        this.name = name;
    }

    public String getSiteHandle() {
        return name;
    }

    public Profiles getProfiles() {
        return profiles;
    }
}
