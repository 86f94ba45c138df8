// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.site.classes;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

public class SiteStore {
    public final Map<String, SiteCatalogEntry> all = new HashMap<String, SiteCatalogEntry>();

    public Iterator<SiteCatalogEntry> entryIterator() {
        return all.values().iterator();
    }
}
