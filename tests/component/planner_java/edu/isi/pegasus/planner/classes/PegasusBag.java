// A small planner of our own for tests, with the names the plug-in knows from Pegasus.
package edu.isi.pegasus.planner.classes;

import edu.isi.pegasus.common.logging.LogManager;
import edu.isi.pegasus.planner.catalog.site.classes.SiteStore;
import edu.isi.pegasus.planner.catalog.transformation.Mapper;
import edu.isi.pegasus.planner.common.PegasusProperties;
import java.io.File;

public class PegasusBag {
    public final PegasusProperties properties = new PegasusProperties();
    public final PlannerOptions options = new PlannerOptions();
    public final LogManager logger = new LogManager();
    public final SiteStore sites = new SiteStore();
    public final Mapper mapper = new Mapper() {};
    public File replicas;

    public PlannerOptions getPlannerOptions() {
        return options;
    }

    public File getReplicaCatalogFileSource() {
        return replicas;
    }
}
