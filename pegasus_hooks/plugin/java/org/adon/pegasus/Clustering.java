package org.adon.pegasus;

import edu.isi.pegasus.planner.classes.Job;
import edu.isi.pegasus.planner.classes.PegasusBag;
import edu.isi.pegasus.planner.common.PegasusProperties;

/**
 * Which jobs become one after site selection. Pegasus does that by label ({@code --cluster label})
 * or with the whole workflow ({@code --cluster whole}), and cannot where their sites differ.
 * Horizontal clustering takes what it finds at each site, and needs nothing.
 */
final class Clustering {

    private final String labelKey;
    private final boolean whole;

    private Clustering(String labelKey, boolean whole) {
        this.labelKey = labelKey;
        this.whole = whole;
    }

    /** What the user asked for on the command line. */
    static Clustering asked(PegasusBag bag, PegasusProperties properties) {
        String label = null;
        boolean whole = false;
        try {
            String asked = bag.getPlannerOptions().getClusteringTechnique();
            for (String type : asked == null ? new String[0] : asked.split(",")) {
                if (type.trim().equalsIgnoreCase("label")) {
                    String key = properties.getProperty("pegasus.clusterer.label.key");
                    label = key == null ? "label" : key;
                }
                whole |= type.trim().equalsIgnoreCase("whole");
            }
        } catch (LinkageError error) {
            // A Pegasus whose options are called otherwise: no clusters are known.
        }
        return new Clustering(label, whole);
    }

    /** The name of the job's cluster, null without one. */
    String of(Job job) {
        if (whole) {
            return "whole";
        }
        Object label = labelKey == null ? null : job.vdsNS.get(labelKey);
        return label == null ? null : label.toString();
    }
}
