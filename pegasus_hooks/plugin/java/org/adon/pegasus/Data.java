package org.adon.pegasus;

import java.util.ArrayList;
import java.util.List;

/** A logical file. */
final class Data {

    final String lfn;

    /** Bytes, or -1 where nothing tells. */
    long size = -1;

    /** Whether the workflow wants it at the output site. */
    boolean wanted;

    /** Whether its checksum is known. */
    boolean checksum;

    /** Whether all jobs that read it bring it themselves, past the staging site. */
    boolean bypass = true;

    /** Whether a job writes it; others are inputs of the workflow. */
    boolean produced;

    /** For an input of the workflow: pairs of site and URL. */
    final List<String[]> places = new ArrayList<String[]>(0);

    Data(String lfn) {
        this.lfn = lfn;
    }

    /** Takes a size that is there, and keeps the one it has otherwise. */
    void learn(double bytes) {
        if (size < 0 && bytes >= 0 && bytes < 9e18) {
            size = (long) bytes;
        }
    }
}
