// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.classes;

import edu.isi.pegasus.planner.classes.Profile;
import java.util.ArrayList;
import java.util.List;

public class Profiles {
    private final List<Profile> all = new ArrayList<Profile>();

    public List<Profile> getProfiles() {
        return all;
    }
}
