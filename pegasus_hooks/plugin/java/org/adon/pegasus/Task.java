package org.adon.pegasus;

import java.util.List;
import java.util.Map;

/** A job of the workflow: what decides where it can go, and where it went. */
final class Task {

    /** The id in the abstract workflow. */
    final String id;

    /** The job of the planner that this one stands for; sites are written there at the end. */
    final Target target;

    /** Index into {@link Work#transformations}. */
    final int transformation;

    /** "job", or the type of a sub-workflow, which Pegasus plans and runs at the submit host. */
    final String kind;

    /** Sites that can run it, sorted; where the user fixed it by a hint, that site only. */
    final List<String> sites;

    /** Whether {@link #sites} is the user's own choice (profile {@code execution.site}). */
    final boolean fixed;

    /** Jobs of one group go to one site, as with Pegasus's Group selector. Null without one. */
    final String group;

    /** Jobs of one cluster become one job after site selection. Null without one. */
    final String cluster;

    /** Profiles as the workflow has them, null where it has none. */
    final String runtime;

    final String cores;

    /** Priorities and data configuration, by names such as "condor.priority". */
    final Map<String, String> profiles;

    /** Indices into {@link Work#files}, and into {@link Work#tasks}. */
    int[] reads = {};

    int[] writes = {};
    int[] parents = {};

    Task(
            String id,
            Target target,
            int transformation,
            String kind,
            List<String> sites,
            boolean fixed,
            String group,
            String cluster,
            String runtime,
            String cores,
            Map<String, String> profiles) {
        this.id = id;
        this.target = target;
        this.transformation = transformation;
        this.kind = kind;
        this.sites = sites;
        this.fixed = fixed;
        this.group = group;
        this.cluster = cluster;
        this.runtime = runtime;
        this.cores = cores;
        this.profiles = profiles;
    }

    /** Whether the user has given it a priority. */
    boolean hasPriority() {
        for (String name : profiles.keySet()) {
            if (name.endsWith("." + Profiles.PRIORITY)) {
                return true;
            }
        }
        return false;
    }

    /** Takes what was chosen: the site, and the priority by which HTCondor starts the job. */
    interface Target {
        void place(String site);

        void prioritise(int priority);
    }
}
