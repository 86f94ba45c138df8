// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.site.classes;

import edu.isi.pegasus.planner.catalog.classes.Profiles;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

public class SiteCatalogEntry {
    private final String name;
    private final Profiles profiles = new Profiles();
    public FileServer scratch;
    public final Map<String, Profiles> tags = new HashMap<String, Profiles>();

    public SiteCatalogEntry(String name) {
        this.name = name;
    }

    public String getSiteHandle() {
        return name;
    }

    public Profiles getProfiles() {
        return profiles;
    }

    public FileServer selectHeadNodeScratchSharedFileServer(FileServer.OPERATION operation) {
        return operation == FileServer.OPERATION.put ? scratch : null;
    }

    public Collection<String> getTags() {
        return tags.keySet();
    }

    public Profiles getTagProfiles(String name) {
        return tags.get(name);
    }
}
