// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.site.classes;

public class FileServer extends FileServerType {
    public FileServer(String prefix) {
        super(prefix);
    }
}
