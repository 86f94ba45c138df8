// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.catalog.replica.classes;

import java.util.Iterator;

public class ReplicaStore {
    @SuppressWarnings("rawtypes")
    public Iterator replicaLocationIterator() {
        return null;
    }
}
