// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.common;

import java.util.HashMap;
import java.util.Map;

public class PegasusProperties {
    public final Map<String, String> all = new HashMap<String, String>();

    public String getProperty(String key) {
        return all.get(key);
    }
}
