// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.namespace;

import java.util.HashMap;
import java.util.Map;

public abstract class Namespace {
    private final Map<Object, Object> all = new HashMap<Object, Object>();

    public Object get(Object key) {
        return all.get(key);
    }

    public void construct(String key, String value) {
        put(key, value);
    }

    public void put(String key, String value) {
        all.put(key, value);
    }
}
