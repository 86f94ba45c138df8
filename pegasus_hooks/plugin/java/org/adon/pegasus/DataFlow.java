package org.adon.pegasus;

import edu.isi.pegasus.planner.classes.DataFlowJob;
import edu.isi.pegasus.planner.classes.Job;
import edu.isi.pegasus.planner.partitioner.graph.GraphNode;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** Jobs that run at the same time as one (Decaf): Pegasus wants a site for it and for each part. */
final class DataFlow implements Task.Target {

    private final List<Job> jobs = new ArrayList<Job>();

    DataFlow(Job job) {
        jobs.add(job);
        for (Iterator<?> it = ((DataFlowJob) job).nodeIterator(); it.hasNext(); ) {
            jobs.add((Job) ((GraphNode) it.next()).getContent());
        }
    }

    static boolean is(Job job) {
        try {
            return job instanceof DataFlowJob;
        } catch (LinkageError error) {
            return false; // a Pegasus that has no such jobs
        }
    }

    /** The job itself, then its parts. */
    List<Job> jobs() {
        return jobs;
    }

    @Override
    public void place(String site) {
        for (Job job : jobs) {
            job.setSiteHandle(site);
        }
    }

    @Override
    public void prioritise(int priority) {
        for (Job job : jobs) {
            JobTarget.prioritise(job, priority);
        }
    }
}
