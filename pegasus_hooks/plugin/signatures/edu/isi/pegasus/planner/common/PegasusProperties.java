// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.common;

public class PegasusProperties {
    public String getProperty(String key) {
        return null;
    }
}
