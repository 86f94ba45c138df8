// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.common.logging;

public abstract class LogManager {
    public static final int CONSOLE_MESSAGE_LEVEL = 2;
    public static final int WARNING_MESSAGE_LEVEL = 3;
    public static final int INFO_MESSAGE_LEVEL = 4;

    public void log(String message, int level) {}
}
