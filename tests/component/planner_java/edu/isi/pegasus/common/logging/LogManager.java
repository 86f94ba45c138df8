// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.common.logging;

public class LogManager {
    /** Lines {@code log<TAB>level<TAB>message}, as tests read them. */
    public void log(String message, int level) {
        System.out.println("log\t" + level + "\t" + message);
    }
}
