// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.transformation;

import java.util.List;

public abstract class Mapper {
    @SuppressWarnings("rawtypes")
    public List getSiteList(String namespace, String name, String version, List sites) {
        return null;
    }

    @SuppressWarnings("rawtypes")
    public List getTCList(String namespace, String name, String version, String site) {
        return null;
    }
}
