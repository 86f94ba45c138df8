// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.catalog.replica.ReplicaCatalogEntry;
import java.util.ArrayList;
import java.util.List;

public class ReplicaLocation {
    public final String lfn;
    public final String size;
    public final List<ReplicaCatalogEntry> places = new ArrayList<ReplicaCatalogEntry>();

    public ReplicaLocation(String lfn, String size) {
        this.lfn = lfn;
        this.size = size;
    }

    public String getLFN() {
        return lfn;
    }

    public String getMetadata(String key) {
        return key.equals("size") && !size.isEmpty() ? size : null;
    }

    public List<ReplicaCatalogEntry> getPFNList() {
        return places;
    }
}
