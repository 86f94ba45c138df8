package org.adon.pegasus;

import edu.isi.pegasus.common.logging.LogManager;
import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.selector.site.Abstract;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Pegasus's site selection by ADON: asked once per workflow, it hands the whole of it to a process
 * of ADON and takes the sites from its answer. Without an answer in time the built-in rule maps, one
 * line in the log says why, and planning goes on.
 */
public final class AdonSiteSelector extends Abstract {

    static final String COMMAND_PROPERTY = "pegasus.selector.site.adon.command";
    static final String CONFIG_PROPERTY = "pegasus.selector.site.adon.config";
    static final String TIMEOUT_PROPERTY = "pegasus.selector.site.adon.timeout";
    static final double DEFAULT_TIMEOUT = 30;

    /** What a note begins with that is worth a warning. */
    private static final String WARNING = "warning: ";

    /** Loaded by name. */
    public AdonSiteSelector() {}

    @Override
    public String description() {
        return "ADON: sites for whole workflows by expected finish";
    }

    /** Sets the site of each job for which the user has not set one. */
    @Override
    @SuppressWarnings("rawtypes") // as the planner declares it
    public void mapWorkflow(ADag workflow, List sites) {
        long began = System.nanoTime();
        Clustering clustering = Clustering.asked(mBag, mProps);
        Work work = new WorkReader(mTCMapper, sites, clustering, workflow.getLabel())
                .read(workflow);
        if (work.tasks.isEmpty() || impossible(work)) {
            return;
        }
        List<String> chosen;
        String by;
        int level = LogManager.CONSOLE_MESSAGE_LEVEL; // seen without -v
        try {
            for (String part : Catalogs.read(work, workflow, mBag, mProps, mSiteStore, mTCMapper)) {
                log("ADON: this Pegasus does not tell " + part,
                        LogManager.INFO_MESSAGE_LEVEL);
            }
            Asker asker = asker();
            Answer.Mapping found = ask(asker, work);
            chosen = found.sites;
            Set<Integer> theirs = clustering.ofTheUsers(work.tasks);
            for (int i = 0; i < chosen.size(); i++) {
                Task task = work.tasks.get(i);
                if (found.priorities.get(i) != null
                        && (task.hasPriority() || !theirs.contains(task.transformation))) {
                    task.target.prioritise(found.priorities.get(i));
                }
            }
            by = " by " + found.policy;
            if (found.makespan >= 0) {
                by = ", expected to take " + Words.time(found.makespan) + by;
            }
            if (asker.shortfall() != null) {
                by += ", its first mapping: " + asker.shortfall().getMessage();
                level = LogManager.WARNING_MESSAGE_LEVEL;
            }
        } catch (Refusal refusal) {
            chosen = Rule.map(work);
            by = " by the built-in rule, without ADON: " + refusal.getMessage();
            level = LogManager.WARNING_MESSAGE_LEVEL;
        }
        for (int i = 0; i < chosen.size(); i++) {
            work.tasks.get(i).target.place(chosen.get(i));
        }
        log(said(work, chosen, began, by), level);
    }

    /** Where a job can run nowhere the others are placed all the same: the planner names the first
     * that is not, and the reason. */
    private static boolean impossible(Work work) {
        boolean found = false;
        for (Task task : work.tasks) {
            found |= task.sites.isEmpty();
        }
        for (Task task : work.tasks) {
            if (found && !task.sites.isEmpty()) {
                task.target.place(task.sites.get(0));
            }
        }
        return found;
    }

    private Asker asker() throws Refusal {
        String command = mProps.getProperty(COMMAND_PROPERTY);
        if (command == null || command.trim().isEmpty()) {
            throw new Refusal(COMMAND_PROPERTY + " is not set");
        }
        return new Asker(Words.split(command), timeout());
    }

    private Answer.Mapping ask(Asker asker, Work work) throws Refusal {
        try {
            return asker.ask(work, mProps.getProperty(CONFIG_PROPERTY));
        } finally {
            for (String note : asker.notes()) {
                boolean warns = note.startsWith(WARNING);
                log("ADON: " + (warns ? note.substring(WARNING.length()) : note), warns
                        ? LogManager.WARNING_MESSAGE_LEVEL : LogManager.INFO_MESSAGE_LEVEL);
            }
        }
    }

    private double timeout() throws Refusal {
        String value = mProps.getProperty(TIMEOUT_PROPERTY);
        try {
            double seconds = value == null ? DEFAULT_TIMEOUT : Double.parseDouble(value.trim());
            if (seconds > 0 && seconds <= 1e6) {
                return seconds;
            }
        } catch (NumberFormatException error) {
            // Said below, like a number that is none of those.
        }
        throw new Refusal(TIMEOUT_PROPERTY + " is '" + Words.line(value)
                + "', expected seconds above 0");
    }

    private static String said(Work work, List<String> chosen, long began, String by) {
        Map<String, Integer> counts = new TreeMap<String, Integer>();
        for (String site : chosen) {
            counts.merge(site, 1, Integer::sum);
        }
        List<String> parts = new ArrayList<String>();
        for (Map.Entry<String, Integer> count : counts.entrySet()) {
            parts.add(count.getKey() + " " + count.getValue());
        }
        return "ADON: " + chosen.size() + " jobs of " + Words.line(String.valueOf(work.name))
                + " mapped in " + Words.time((System.nanoTime() - began) / 1e9) + " ("
                + Words.line(String.join(", ", parts)) + ")" + by;
    }

    private void log(String line, int level) {
        mLogger.log(line, level);
    }
}
