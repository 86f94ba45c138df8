package org.adon.pegasus;

import edu.isi.pegasus.planner.classes.Job;
import edu.isi.pegasus.planner.classes.PegasusBag;
import edu.isi.pegasus.planner.common.PegasusProperties;

import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Which jobs become one after site selection. Pegasus does that by label ({@code --cluster label})
 * or with the whole workflow ({@code --cluster whole}), and cannot where their sites differ.
 * Horizontal clustering takes what it finds at each site; what it makes has the priority of the last
 * of its jobs that has one.
 */
final class Clustering {

    private final String labelKey;
    private final boolean whole;
    private final boolean horizontal;

    private Clustering(String labelKey, boolean whole, boolean horizontal) {
        this.labelKey = labelKey;
        this.whole = whole;
        this.horizontal = horizontal;
    }

    /** What the user asked for on the command line. */
    static Clustering asked(PegasusBag bag, PegasusProperties properties) {
        String label = null;
        boolean whole = false;
        boolean horizontal = false;
        try {
            String asked = bag.getPlannerOptions().getClusteringTechnique();
            for (String type : asked == null ? new String[0] : asked.split(",")) {
                if (type.trim().equalsIgnoreCase("label")) {
                    String key = properties.getProperty("pegasus.clusterer.label.key");
                    label = key == null ? "label" : key;
                }
                whole |= type.trim().equalsIgnoreCase("whole");
                horizontal |= type.trim().equalsIgnoreCase("horizontal");
            }
        } catch (LinkageError error) {
            // A Pegasus whose options are called otherwise: no clusters are known.
        }
        return new Clustering(label, whole, horizontal);
    }

    /** The name of the job's cluster, null without one. */
    String of(Job job) {
        if (whole) {
            return "whole";
        }
        Object label = labelKey == null ? null : job.vdsNS.get(labelKey);
        return label == null ? null : label.toString();
    }

    /** The programs whose jobs may share a cluster with one that has the user's own priority: it
     * would be lost if the others had any. */
    Set<Integer> ofTheUsers(List<Task> tasks) {
        Set<Integer> found = new HashSet<Integer>();
        for (Task task : tasks) {
            if (horizontal && task.hasPriority()) {
                found.add(task.transformation);
            }
        }
        return found;
    }
}
