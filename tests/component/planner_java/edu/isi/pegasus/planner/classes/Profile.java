// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

public class Profile {
    private final String namespace;
    private final String key;
    private final String value;

    public Profile(String namespace, String key, String value) {
        this.namespace = namespace;
        this.key = key;
        this.value = value;
    }

    public String getProfileNamespace() {
        return namespace;
    }

    public String getProfileKey() {
        return key;
    }

    public String getProfileValue() {
        return value;
    }
}
