package org.adon.pegasus;

import edu.isi.pegasus.planner.classes.Job;

/** A job of the planner. */
final class JobTarget implements Task.Target {

    private final Job job;
    private final boolean fixed;

    /** @param fixed the user's hint holds, and the planner follows it by itself */
    JobTarget(Job job, boolean fixed) {
        this.job = job;
        this.fixed = fixed;
    }

    @Override
    public void place(String site) {
        if (!fixed) {
            job.setSiteHandle(site);
        }
    }

    @Override
    public void prioritise(int priority) {
        prioritise(job, priority);
    }

    /** As the profile {@code condor: priority}, which DAGMan's priority of the node follows, unless
     * the user has given one. */
    static void prioritise(Job job, int priority) {
        if (job.condorVariables.get(Profiles.PRIORITY) == null) {
            job.condorVariables.construct(Profiles.PRIORITY, Integer.toString(priority));
        }
    }
}
