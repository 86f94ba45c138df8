import edu.isi.pegasus.planner.catalog.replica.ReplicaCatalogEntry;
import edu.isi.pegasus.planner.catalog.site.classes.FileServer;
import edu.isi.pegasus.planner.catalog.site.classes.SiteCatalogEntry;
import edu.isi.pegasus.planner.catalog.transformation.TransformationCatalogEntry;
import edu.isi.pegasus.planner.classes.ADag;
import edu.isi.pegasus.planner.classes.DAGJob;
import edu.isi.pegasus.planner.classes.DAXJob;
import edu.isi.pegasus.planner.classes.DataFlowJob;
import edu.isi.pegasus.planner.classes.Job;
import edu.isi.pegasus.planner.classes.PegasusBag;
import edu.isi.pegasus.planner.classes.PegasusFile;
import edu.isi.pegasus.planner.classes.Profile;
import edu.isi.pegasus.planner.classes.ReplicaLocation;
import edu.isi.pegasus.planner.namespace.Namespace;
import edu.isi.pegasus.planner.partitioner.graph.GraphNode;
import edu.isi.pegasus.planner.selector.SiteSelector;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads a scene from standard input, one fact per line with tabs between, loads the site selector by
 * its name as a planner does, and prints {@code site<TAB>job<TAB>site} for every job.
 */
public final class FakePlanner {

    private final PegasusBag bag = new PegasusBag();
    private final ADag workflow = new ADag();
    private final List<Object> sites = new ArrayList<Object>();
    private final Map<String, GraphNode> nodes = new HashMap<String, GraphNode>();
    private final Map<String, Job> parts = new HashMap<String, Job>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(new PrintStream(System.out, false, "UTF-8"));
        FakePlanner planner = new FakePlanner();
        BufferedReader in = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            planner.fact(line.split("\t", -1));
        }
        planner.plan(arguments[0]);
        System.out.flush();
    }

    private void plan(String name) throws Exception {
        SiteSelector selector =
                (SiteSelector) Class.forName(name).getDeclaredConstructor().newInstance();
        selector.initialize(bag);
        long began = System.nanoTime();
        selector.mapWorkflow(workflow, sites);
        long took = System.nanoTime() - began;
        for (Job job : parts.values()) {
            System.out.println("site\t" + job.id + "\t" + followed(job));
            System.out.println("priority\t" + job.id + "\t" + priority(job));
        }
        System.out.println("asked\t" + bag.mapper.asked);
        System.out.println("seconds\t" + took / 1e9);
    }

    /** Like a planner, the user's hint is followed after site selection. */
    private static Object followed(Job job) {
        Object hint = job.getSelectorProfiles().get("execution.site");
        hint = hint == null ? job.hints.get("execution.site") : hint;
        return hint == null ? job.site : hint;
    }

    private static Object priority(Job job) {
        Object given = job.condorVariables.get("priority");
        return given == null ? "" : given;
    }

    private void fact(String[] f) throws Exception {
        switch (f[0]) {
            case "name": workflow.label = f[1]; break;
            case "property": bag.properties.all.put(f[1], f[2]); break;
            case "execution": sites.add(f[1]); break;
            case "cluster": bag.options.clustering = f[1]; break;
            case "output": bag.options.outputs.add(f[1]); break;
            case "staging": bag.options.staging.put(f[1], f[2]); break;
            case "replicas": bag.replicas = new File(f[1]); break;
            case "inherited": bag.options.inherited.add(f[1]); break;
            case "cache": bag.options.cache.add(f[1]); break;
            case "directory": bag.options.directories.add(f[1]); break;
            case "site": bag.sites.all.put(f[1], new SiteCatalogEntry(f[1])); break;
            case "scratch": bag.sites.all.get(f[1]).scratch = new FileServer(f[2]); break;
            case "siteprofile":
                bag.sites.all.get(f[1]).getProfiles().getProfiles().add(
                        new Profile("pegasus", f[2], f[3]));
                break;
            case "sitetag":
                bag.sites.all.get(f[1]).tags.computeIfAbsent(
                        f[2], tag -> new edu.isi.pegasus.planner.catalog.classes.Profiles())
                        .getProfiles().add(new Profile("pegasus", f[3], f[4]));
                break;
            case "program": program(f); break;
            case "job": job(f); break;
            case "part": part(f); break;
            case "profile": space(parts.get(f[1]), f[2]).put(f[3], f[4]); break;
            case "use": use(f); break;
            case "edge": nodes.get(f[2]).parents.add(nodes.get(f[1])); break;
            case "replica": replica(f); break;
            default: throw new IllegalArgumentException("a scene has no " + f[0]);
        }
    }

    private void program(String[] f) {
        String name = (f[1].isEmpty() ? null : f[1]) + "::" + f[2] + ":"
                + (f[3].isEmpty() ? null : f[3]);
        Map<String, TransformationCatalogEntry> found = bag.mapper.programs.get(name);
        if (found == null) {
            found = new HashMap<String, TransformationCatalogEntry>();
            bag.mapper.programs.put(name, found);
        }
        TransformationCatalogEntry entry = new TransformationCatalogEntry();
        if (!f[5].isEmpty()) {
            entry.profiles = new ArrayList<Profile>();
            entry.profiles.add(new Profile("pegasus", "runtime", f[5]));
        }
        found.put(f[4], entry);
    }

    private Job made(String[] f) {
        Job job = f[2].equals("DAXJob") ? new DAXJob() : f[2].equals("DAGJob") ? new DAGJob()
                : f[2].equals("DataFlowJob") ? new DataFlowJob() : new Job();
        job.id = f[1];
        job.name = new String[] {f[3], f[4], f[5]};
        parts.put(job.id, job);
        return job;
    }

    private void job(String[] f) {
        GraphNode node = new GraphNode(made(f));
        nodes.put(f[1], node);
        workflow.nodes.put(((Job) node.content).getID(), node);
    }

    private void part(String[] f) {
        ((DataFlowJob) parts.get(f[6])).parts.add(new GraphNode(made(f)));
    }

    private static Namespace space(Job job, String name) {
        return name.equals("pegasus") ? job.vdsNS
                : name.equals("hints") ? job.hints
                : name.equals("condor") ? job.condorVariables
                : name.equals("dagman") ? job.dagmanVariables : job.getSelectorProfiles();
    }

    @SuppressWarnings("unchecked")
    private void use(String[] f) {
        Job job = parts.get(f[1]);
        double size = f[4].isEmpty() ? -1 : Double.parseDouble(f[4]);
        PegasusFile file = new PegasusFile(
                f[2], size, f[6].equals("executable") ? 1 : 0, f[5].equals("stays"),
                f.length > 7 && f[7].equals("bypass"));
        (f[3].equals("input") ? job.inputFiles : job.outputFiles).add(file);
    }

    private void replica(String[] f) {
        ReplicaLocation location = new ReplicaLocation(f[1], f[4]);
        location.places.add(new ReplicaCatalogEntry(f[2], f[3]));
        workflow.replicas.all.add(location);
    }
}
