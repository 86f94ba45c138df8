// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.site.classes;

public abstract class FileServerType {
    public enum OPERATION {
        put
    }

    public String getURLPrefix() {
        return null;
    }
}
