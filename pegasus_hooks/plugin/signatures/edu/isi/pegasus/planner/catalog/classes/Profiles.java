// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.classes;

import edu.isi.pegasus.planner.classes.Profile;
import java.util.List;

public class Profiles {
    public List<Profile> getProfiles() {
        return null;
    }
}
