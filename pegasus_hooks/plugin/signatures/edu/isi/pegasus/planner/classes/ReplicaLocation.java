// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.planner.catalog.replica.ReplicaCatalogEntry;
import java.util.List;

public class ReplicaLocation {
    public String getLFN() {
        return null;
    }

    public String getMetadata(String key) {
        return null;
    }

    public List<ReplicaCatalogEntry> getPFNList() {
        return null;
    }
}
