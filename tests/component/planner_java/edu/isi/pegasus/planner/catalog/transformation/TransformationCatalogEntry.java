// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.transformation;

import edu.isi.pegasus.planner.classes.Profile;
import java.util.List;

public class TransformationCatalogEntry {
    public List<Profile> profiles;

    public List getProfiles() {
        return profiles;
    }
}
