// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.classes;

public class PegasusFile {
    public static final int EXECUTABLE_FILE = 1;

    public String getLFN() {
        return null;
    }

    public double getSize() {
        return -1;
    }

    public int getType() {
        return 0;
    }

    public boolean doBypassStaging() {
        return false;
    }

    public boolean getTransientTransferFlag() {
        return false;
    }
}
