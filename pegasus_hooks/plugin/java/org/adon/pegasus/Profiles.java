package org.adon.pegasus;

import java.util.Map;

/** The profiles of jobs and transformations that a mapping takes into account. */
final class Profiles {

    static final String PRIORITY = "priority";
    static final String CONFIGURATION = "data.configuration";
    static final String TAG = "tag";
    /** HTCondor's priority of a job, and DAGMan's of its node. */
    static final String[] OF_PRIORITIES = {"condor", "dagman"};

    private Profiles() {}

    /** Puts a profile that is one into {@code found}, under a name such as "condor.priority". */
    static void put(String namespace, String key, Object value, Map<String, String> found) {
        if (value == null || value.toString().isEmpty()) {
            return;
        }
        if ("pegasus".equals(namespace) && (CONFIGURATION.equals(key) || TAG.equals(key))) {
            found.putIfAbsent("pegasus." + key, value.toString());
        }
        for (String known : OF_PRIORITIES) {
            if (known.equals(namespace) && PRIORITY.equalsIgnoreCase(key)) {
                found.putIfAbsent(known + "." + PRIORITY, value.toString());
            }
        }
    }
}
