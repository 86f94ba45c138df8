// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.site.classes;

public abstract class FileServerType {
    public enum OPERATION { get, put, all }

    private final String prefix;

    FileServerType(String prefix) {
        this.prefix = prefix;
    }

    public String getURLPrefix() {
        return prefix;
    }
}
