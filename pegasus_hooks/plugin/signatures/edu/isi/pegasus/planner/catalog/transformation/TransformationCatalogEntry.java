// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.transformation;

import java.util.List;

public class TransformationCatalogEntry {
    @SuppressWarnings("rawtypes")
    public List getProfiles() {
        return null;
    }
}
