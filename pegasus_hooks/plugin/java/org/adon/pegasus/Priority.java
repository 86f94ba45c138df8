package org.adon.pegasus;

import java.util.Map;

/** The user's priority of a job: HTCondor's, and DAGMan's of the node. */
final class Priority {

    static final String KEY = "priority";
    private static final String[] NAMESPACES = {"condor", "dagman"};

    private Priority() {}

    /** Puts a profile that is one into {@code found}, under a name such as "condor.priority". */
    static void put(String namespace, String key, Object value, Map<String, String> found) {
        for (String known : NAMESPACES) {
            if (known.equals(namespace) && KEY.equalsIgnoreCase(key)
                    && value != null && !value.toString().isEmpty()) {
                found.put(known + "." + KEY, value.toString());
            }
        }
    }
}
