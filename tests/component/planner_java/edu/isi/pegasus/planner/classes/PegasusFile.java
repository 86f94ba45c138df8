// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

public class PegasusFile {
    public final String lfn;
    public final double size;
    public final int type;
    public final boolean stays;
    public final boolean bypass;

    public PegasusFile(String lfn, double size, int type, boolean stays, boolean bypass) {
        this.lfn = lfn;
        this.size = size;
        this.type = type;
        this.stays = stays;
        this.bypass = bypass;
    }

    public String getLFN() {
        return lfn;
    }

    public double getSize() {
        return size;
    }

    public int getType() {
        return type;
    }

    public boolean doBypassStaging() {
        return bypass;
    }

    public boolean getTransientTransferFlag() {
        return stays;
    }
}
