// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.namespace;

public abstract class Namespace {
    public Object get(Object key) {
        return null;
    }

    public void construct(String key, String value) {}
}
