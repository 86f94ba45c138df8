// What the plug-in uses of Pegasus, to compile against. No behaviour; not in the jar.
package edu.isi.pegasus.planner.selector.site;

import edu.isi.pegasus.common.logging.LogManager;
import edu.isi.pegasus.planner.catalog.site.classes.SiteStore;
import edu.isi.pegasus.planner.catalog.transformation.Mapper;
import edu.isi.pegasus.planner.classes.PegasusBag;
import edu.isi.pegasus.planner.common.PegasusProperties;
import edu.isi.pegasus.planner.selector.SiteSelector;

public abstract class Abstract implements SiteSelector {
    protected PegasusProperties mProps;
    protected LogManager mLogger;
    protected SiteStore mSiteStore;
    protected Mapper mTCMapper;
    protected PegasusBag mBag;

    @Override
    public void initialize(PegasusBag bag) {}
}
