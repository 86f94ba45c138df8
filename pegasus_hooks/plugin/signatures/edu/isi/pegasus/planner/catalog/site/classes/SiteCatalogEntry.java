// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.site.classes;

import edu.isi.pegasus.planner.catalog.classes.Profiles;
import java.util.Collection;

public class SiteCatalogEntry {
    public String getSiteHandle() {
        return null;
    }

    public Profiles getProfiles() {
        return null;
    }

    public FileServer selectHeadNodeScratchSharedFileServer(FileServer.OPERATION operation) {
        return null;
    }

    public Collection<String> getTags() {
        return null;
    }

    public Profiles getTagProfiles(String name) {
        return null;
    }
}
