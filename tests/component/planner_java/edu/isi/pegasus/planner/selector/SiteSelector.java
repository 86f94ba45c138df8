// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.selector;

import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.classes.PegasusBag;
import java.util.List;

public interface SiteSelector {
    void initialize(PegasusBag bag);

    void mapWorkflow(ADag workflow, List sites);

    String description();
}
