// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.selector;

import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.classes.PegasusBag;
import java.util.List;

public interface SiteSelector {
    void initialize(PegasusBag bag);

    @SuppressWarnings("rawtypes")
    void mapWorkflow(ADag workflow, List sites);

    String description();
}
