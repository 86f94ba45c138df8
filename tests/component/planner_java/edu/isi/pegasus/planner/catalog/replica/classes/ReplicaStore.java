// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.catalog.replica.classes;

import edu.isi.pegasus.planner.classes.ReplicaLocation;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

public class ReplicaStore {
    public final List<ReplicaLocation> all = new ArrayList<ReplicaLocation>();

    public Iterator replicaLocationIterator() {
        return all.iterator();
    }
}
