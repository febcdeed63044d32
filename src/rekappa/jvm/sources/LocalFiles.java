package rekappa;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without its commands: without a native library it starts `chmod` for every file and folder
 * that it makes, and `readlink` for every one that it renames. Java does both by itself.
 *
 * Compiled by the compiler that Spark brings, which knows neither lambdas nor type inference.
 */
public final class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    static final class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            String modes = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(this.pathToFile(path).toPath(), PosixFilePermissions.fromString(modes));
        }

        public FileStatus getFileLinkStatus(Path path) throws IOException {
            if (Files.isSymbolicLink(this.pathToFile(path).toPath())) {
                return super.getFileLinkStatus(path);
            }
            return this.getFileStatus(path);
        }
    }

    /** The same behind Hadoop's other interface, by which Spark writes the log of a query. */
    public static final class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawContext(uri, conf));
        }
    }

    static final class RawContext extends DelegateToFileSystem {
        RawContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new Raw(), conf, "file", false);
        }

        public int getUriDefaultPort() {
            return -1;
        }

        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        public boolean isValidName(String name) {
            return true;
        }
    }
}
