// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

public class Profile {
    public String getProfileNamespace() {
        return null;
    }

    public String getProfileKey() {
        return null;
    }

    public String getProfileValue() {
        return null;
    }
}
