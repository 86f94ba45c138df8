package org.adon.pegasus;

import java.util.Iterator;
import java.util.stream.Stream;

/** Ends a process, and what it has started where the Java that runs this can tell. */
final class Ending {

    private Ending() {}

    static void kill(Process process) {
        try {
            // Since Java 9; looked up by name, because this is compiled for Java 8.
            Object found = Process.class.getMethod("descendants").invoke(process);
            Class<?> handle = Class.forName("java.lang.ProcessHandle");
            Iterator<?> all = ((Stream<?>) found).iterator();
            while (all.hasNext()) {
                handle.getMethod("destroyForcibly").invoke(all.next());
            }
        } catch (ReflectiveOperationException error) {
            // Java 8: the process alone.
        } catch (RuntimeException error) {
            // Not permitted here: the process alone.
        }
        process.destroyForcibly();
    }
}
